#!/bin/sh
# Runs Chromium without a window, in the foreground: DevTools on port $1 (9222), profile in $2.
#
# --no-sandbox: it runs as root, and the machine is the sandbox. The other switches turn off what a fork does not need:
# work in the background would make every fork write pages.
exec chromium-headless-shell \
  --no-sandbox --disable-gpu --disable-dev-shm-usage \
  --remote-debugging-address=127.0.0.1 --remote-debugging-port="${1:-9222}" '--remote-allow-origins=*' \
  --user-data-dir="${2:-/var/lib/browser}" --window-size=1024,768 --hide-scrollbars \
  --no-first-run --disable-background-networking --disable-component-update --disable-default-apps \
  --disable-sync --disable-extensions --disable-crash-reporter --disable-breakpad --mute-audio \
  --disable-features=Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider \
  about:blank
