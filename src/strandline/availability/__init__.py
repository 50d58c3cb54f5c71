"""Staying up: what an operator does while inputs are missing, and how it corrects that when they are back."""
