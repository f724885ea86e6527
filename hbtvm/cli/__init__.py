"""The ``hbtvm`` command: one module for each subcommand, with its parser and its ``run``.

Nothing here imports a compiler or a training library before a command needs it: ``hbtvm
--help`` and ``hbtvm predict`` work, and start fast, where neither is installed.
"""
