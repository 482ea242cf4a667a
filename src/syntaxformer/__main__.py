"""`python -m syntaxformer` is the command `syntaxformer`."""

from syntaxformer.cli.main import main

if __name__ == "__main__":
    main()
