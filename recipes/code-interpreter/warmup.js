for (const name of [
  "fs",
  "path",
  "os",
  "util",
  "events",
  "stream",
  "crypto",
  "child_process",
  "http",
  "https",
  "zlib",
  "worker_threads",
  "perf_hooks",
])
  require(name);
require("node:util").inspect({ list: [1, 2, 3], map: new Map([["a", 1]]) });
JSON.parse(JSON.stringify({ ready: true }));
process.env.HOME = "/home/user";
process.chdir("/home/user");
