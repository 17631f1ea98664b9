"""Uses the browser and the kernel of the notebook server once, as an agent will."""
import browser
import forkd
import notebook_kernel

forkd.after_fork(browser.renew_network)
print(browser.wait_until_ready())
for _color in ("white", "tomato"):
    _page = browser.Page()
    _page.show(f"<body style='background:{_color};font:30px sans-serif'><h1>warm</h1><button>a</button><input></body>")
    assert _page.run("document.querySelector('h1').textContent") == "warm"
    assert _page.screenshot().startswith(b"\x89PNG")
    _page.close()

_kernel = notebook_kernel.Kernel(timeout=540)
for _ in range(2):
    _output = _kernel.run(
        "%matplotlib inline\nimport matplotlib.pyplot as plt\nimport numpy as np\nplt.plot(np.arange(3))\nplt.show()"
    )
    assert _output.figures, _output
_kernel.close()
del _page, _color, _kernel, _output, _
