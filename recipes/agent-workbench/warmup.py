"""Uses the browser and the kernel of the notebook server once, as an agent will."""
import browser
import forkd
import notebook_kernel

forkd.after_fork(browser.renew_network)
browser.warm_up()

_kernel = notebook_kernel.Kernel(timeout=540)
for _ in range(2):
    _output = _kernel.run(
        "%matplotlib inline\nimport matplotlib.pyplot as plt\nimport numpy as np\nplt.plot(np.arange(3))\nplt.show()",
        keep=False,
    )
    assert _output.figures, _output
_kernel.close()
del _kernel, _output, _
