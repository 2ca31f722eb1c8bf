"""`python -m quantify`: the same as the `quantify` command."""

from quantify.cli.main import main

main()
