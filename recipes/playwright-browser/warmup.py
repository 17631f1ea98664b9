"""Waits for the browser and uses it once, as a fork will."""
import browser
import forkd

forkd.after_fork(browser.renew_network)
browser.warm_up()
