"""What commits say of operators: standings, inputs, losses, outages."""
