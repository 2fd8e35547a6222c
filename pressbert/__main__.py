"""`python -m pressbert VERB …` is `pressbert VERB …`."""

from apps.command import run

if __name__ == "__main__":
    run()
