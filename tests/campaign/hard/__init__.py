"""Hard equations for `fdeint`, with solutions that share nothing with the library: see ../hard_solves.py."""
