/** What every child would know. */
import { CannotCheck, pass, warn, type Hazard, type Subject } from "../hazard.ts";
import { secretInFile, secretInVariable, secretsInEnvironment } from "../secret-scan.ts";

/** patterns of the shell; where secrets commonly are */
const filePatterns = [
  "/root/.ssh/id_*",
  "/home/*/.ssh/id_*",
  ...["/root", "/home/*"].flatMap((home) =>
    [
      ".aws/credentials",
      ".netrc",
      ".git-credentials",
      ".npmrc",
      ".pypirc",
      ".docker/config.json",
      ".kube/config",
      ".config/gh/hosts.yml",
      ".env",
    ].map((name) => `${home}/${name}`),
  ),
  ...["/", "/app/", "/srv/", "/opt/", "/etc/", "/run/", "/tmp/", "/root/", "/home/*/", "/var/lib/"].flatMap(
    (dir) => ["*token*", "*secret*", "*password*", "*.pem", "*.key", ".env"].map((name) => `${dir}${name}`),
  ),
  "/etc/ssl/private/*",
];
const maxFiles = 100;
const maxShown = 5;

/** Paths of files that exist, at most a hundred. Names with a line break are left out. */
async function candidates(subject: Subject): Promise<string[]> {
  const listed = await subject.sh(
    `for f in ${filePatterns.join(" ")}; do [ -f "$f" ] && [ ! -L "$f" ] && echo "$f"; done; true`,
  );
  const paths = listed.split("\n").filter((path) => path.startsWith("/") && !path.endsWith(".pub"));
  return [...new Set(paths)].slice(0, maxFiles);
}

async function inFiles(subject: Subject): Promise<string[]> {
  const found: string[] = [];
  for (const path of await candidates(subject)) {
    const what = secretInFile(path, (await subject.read(path)) ?? "");
    if (what !== undefined) found.push(`${path}: ${what}`);
  }
  return found;
}

/** Environments of processes that the snapshot contains, without those that this check starts. */
async function inProcesses(subject: Subject, known: ReadonlySet<string>): Promise<string[]> {
  const listed = await subject.sh(
    `for d in /proc/[0-9]*; do p=\${d#/proc/}; [ "$p" = $$ ] || { [ -r "$d/environ" ] && read -r c < "$d/comm" && echo "$p $c"; }; done 2>/dev/null; true`,
  );
  const found = new Set<string>();
  for (const line of listed.trim().split("\n")) {
    const [pid = "", ...comm] = line.split(" ");
    if (!/^\d+$/.test(pid)) continue;
    const text = await subject.read(`/proc/${pid}/environ`).catch(() => undefined);
    for (const { name, what } of secretsInEnvironment(text ?? ""))
      if (!known.has(name)) found.add(`${name} of ${comm.join(" ")}: ${what}`);
  }
  return [...found];
}

export const secrets: Hazard = {
  id: "secrets",
  title: "Secrets in the snapshot",
  policy: "A snapshot contains no secret: every child, and everyone who has the snapshot, would know it.",
  mechanism:
    "None can remove a secret from memory. This check looks at the environment of the snapshot and of its processes, and at files that commonly contain secrets.",
  async check({ snapshot, children }) {
    const [, subject] = children;
    if (!subject) throw new CannotCheck("no second child");
    const environment = Object.entries(snapshot.manifest.env).flatMap(([name, value]) => {
      const what = secretInVariable(name, value);
      return what === undefined ? [] : [`variable ${name} of the snapshot: ${what}`];
    });
    const names = new Set(Object.keys(snapshot.manifest.env));
    const found = [...environment, ...(await inProcesses(subject, names)), ...(await inFiles(subject))];
    if (found.length === 0)
      return pass("none found in environments and common files; other memory was not searched");
    const more = found.length > maxShown ? `; and ${found.length - maxShown} more` : "";
    return warn(
      `${found.slice(0, maxShown).join("; ")}${more}`,
      "Remove it from the recipe, make a new secret, and pass it to each child with env or values of the fork.",
    );
  },
};
