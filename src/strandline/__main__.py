"""Runs the program `strandline` by `python -m strandline`, where no script of that name is on the path."""

from strandline.cli.app import main

if __name__ == "__main__":
    main()
