"""`python -m strandline` is the program `strandline`, for whoever has no script of that name on the path."""

from strandline.cli.app import main

if __name__ == "__main__":
    main()
