/** /etc/passwd of a guest. Pure. */

export type Account = {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
  readonly home: string;
};

/** Every guest has this user, even one without the file. */
const root: Account = { name: "root", uid: 0, gid: 0, home: "/root" };

/** Accounts by name. Lines that are not valid are skipped; the first line of a name counts, as in libc. */
export function parsePasswd(passwd: string): ReadonlyMap<string, Account> {
  const accounts = new Map<string, Account>();
  for (const line of passwd.split("\n")) {
    const [name, , uid, gid, , home] = line.split(":");
    if (!name || accounts.has(name) || !isNumber(uid) || !isNumber(gid) || !home?.startsWith("/")) continue;
    accounts.set(name, { name, uid: Number(uid), gid: Number(gid), home });
  }
  if (!accounts.has("root")) accounts.set("root", root);
  return accounts;
}

function isNumber(text: string | undefined): text is string {
  return text !== undefined && /^\d{1,10}$/.test(text);
}
