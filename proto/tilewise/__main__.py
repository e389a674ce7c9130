"""`python -m tilewise`: the command line, also in a clone without an install (`PYTHONPATH=proto python -m tilewise ...`)."""

from tilewise.client.cli import main

if __name__ == "__main__":
    main()
