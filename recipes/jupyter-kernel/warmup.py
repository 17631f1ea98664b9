"""Starts a kernel of the Jupyter server and runs cells in it, over the same WebSocket that notebooks use.

The interpreter of forkd, in which this runs, is another process.
"""
import notebook_kernel

# An emulated processor needs a minute to start a kernel.
_kernel = notebook_kernel.Kernel(timeout=500)
with open("/opt/jupyter/cell.py") as _file:
    _kernel.run(_file.read(), keep=False)
# What only the second cell of a notebook does.
_kernel.run("frame.plot(); plt.show(); frame.head()", keep=False)
_kernel.close()
del _kernel, _file
