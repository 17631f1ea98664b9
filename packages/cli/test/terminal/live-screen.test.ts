/** Verbs that redraw the screen leave the terminal as they found it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { idA, openFakeDaemon, sandbox } from "../fake-daemon.ts";
import { runOnTerminal } from "../run-terminal.ts";

const stats = {
  at_unix: 1,
  sandboxes: [
    {
      id: idA,
      snapshot_tag: "py",
      state: "running",
      uptime_secs: 1,
      disk_bytes: 0,
      sampled_at_unix: 1,
    },
  ],
};
const reset = `data: ${JSON.stringify({ id: "0123456789ab-0", type: "reset", at_unix: 1 })}\n\n`;
const leaveScreen = "\u001b[?1049l";

test("q and Ctrl-C leave top and ls --watch with the terminal as it was", async () => {
  await using daemon = await openFakeDaemon({
    "GET /v1/stats": { json: stats },
    "GET /v1/pool": { json: { budget_mib: 0, used_mib: 0, snapshots: [] } },
    "GET /v1/sandboxes": { json: [sandbox(idA)] },
    "GET /v1/events": { bytes: reset, hold: true },
  });
  for (const args of [["top"], ["ls", "--watch"]]) {
    for (const [key, expected] of [
      ["q", 0],
      ["\u0003", 130],
    ] as const) {
      let isPressed = false;
      const { code, text } = await runOnTerminal(args, {
        socket: daemon.socket,
        cols: 80,
        afterwards: "stty -a | grep -o -- '-*\\(icanon\\|echo\\|isig\\) '; echo end",
        onOutput: (screen, child) => {
          if (!isPressed && screen.includes("sb-aa000000")) {
            isPressed = true;
            child.stdin?.write(key);
          }
          if (/end\r?\n$/.test(screen)) child.stdin?.end();
        },
      });
      const what = `${args.join(" ")} after ${JSON.stringify(key)}: ${JSON.stringify(text)}`;
      assert.equal(code, expected, what);
      assert.ok(text.includes(leaveScreen), what);
      const after = text.slice(text.lastIndexOf(leaveScreen));
      for (const mode of ["isig", "icanon", "echo"]) assert.match(after, new RegExp(`(?<!-)${mode} `), what);
    }
  }
});
