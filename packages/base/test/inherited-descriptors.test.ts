import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

const module = new URL("../src/inherited-descriptors.js", import.meta.url).href;

test("closeInheritedDescriptors() closes what a shell left open, so that programs do not get it", () => {
  const script = `import { execFileSync } from "node:child_process";
    import { closeInheritedDescriptors } from ${JSON.stringify(module)};
    const held = () => execFileSync("sh", ["-c", "test -e /proc/self/fd/251 && echo held || echo none"]).toString().trim();
    const before = held();
    console.log(before, closeInheritedDescriptors().includes(251), held());`;
  const shell = `exec 251</dev/null; exec "$0" --input-type=module -e "$1"`;
  const output = execFileSync("bash", ["-c", shell, process.execPath, script]).toString().trim();
  assert.equal(output, "held true none");
});
