"""The pure library: contract, compilers, diffs, judgements. Imports no Ansible."""
