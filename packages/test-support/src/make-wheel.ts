/** Writes a wheel of a Python package with one module and one command, so that tests need no index. */
import { execFileSync } from "node:child_process";
import { join } from "node:path";

type WheelFacts = { name: string; version: string; requires?: readonly string[] };

const script = `
import sys, zipfile
path, name, version, *requires = sys.argv[1:]
info = "%s-%s.dist-info" % (name, version)
files = {
    name + "/__init__.py": "VERSION = %r\\ndef main():\\n    print(%r, VERSION)\\n" % (version, name),
    info + "/METADATA": "Metadata-Version: 2.1\\nName: %s\\nVersion: %s\\n%s" % (
        name, version, "".join("Requires-Dist: %s\\n" % each for each in requires)),
    info + "/WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    info + "/entry_points.txt": "[console_scripts]\\n%s = %s:main\\n" % (name, name),
}
record = "".join(each + ",,\\n" for each in [*files, info + "/RECORD"])
with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
    for each, text in {**files, info + "/RECORD": record}.items():
        wheel.writestr(each, text)
`;

/** Returns the path of the wheel. */
export function makeWheel(directory: string, { name, version, requires = [] }: WheelFacts): string {
  const path = join(directory, `${name}-${version}-py3-none-any.whl`);
  execFileSync("python3", ["-c", script, path, name, version, ...requires]);
  return path;
}
