"""The small programs that run on hosts. Standard library alone, Python 3.9 or newer; built by build.py."""
