"""Waits for the browser and uses it once: fonts, styles, scripts and the encoder of screenshots are then loaded."""
import browser
import forkd

forkd.after_fork(browser.renew_network)
print(browser.wait_until_ready())
for _color in ("white", "tomato"):
    _page = browser.Page()
    _page.show(f"<body style='background:{_color};font:30px sans-serif'><h1>warm</h1><button>a</button><input></body>")
    assert _page.run("document.querySelector('h1').textContent") == "warm"
    assert _page.screenshot().startswith(b"\x89PNG")
    _page.close()
del _page, _color
