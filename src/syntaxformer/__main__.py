"""`python -m syntaxformer` is the command `syntaxformer`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the working directory: as the command, it imports no module that lies there
    from syntaxformer.cli.main import main

    main()
