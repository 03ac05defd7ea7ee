"""The one exception that users meet: their input is wrong, and this is how to mend it."""


class InputError(ValueError):
    """What must hold, the expected value and its origin, the actual value, the place, the next command.

    The command line, and fairseq's commands running this plugin, print the message alone and exit with status 2.
    """
