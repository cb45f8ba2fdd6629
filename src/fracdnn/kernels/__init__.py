"""The Triton kernel of the history sum. `loading` says whether it works on a device."""
