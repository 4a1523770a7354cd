"""`python -m vramline` is the command `vramline`."""

from vramline.cli.main import run

if __name__ == "__main__":
    run()
