/** Which addresses a registry may send the client to. */
import dns from "node:dns";
import net from "node:net";

/** Loopback: this host itself. */
const loopback = new net.BlockList();
loopback.addSubnet("127.0.0.0", 8);
loopback.addAddress("::1", "ipv6");

/** Services of this host and of its cloud that trust every client. */
const inside = new net.BlockList();
inside.addSubnet("127.0.0.0", 8);
inside.addSubnet("0.0.0.0", 8);
inside.addSubnet("169.254.0.0", 16);
inside.addAddress("::1", "ipv6");
inside.addAddress("::", "ipv6");
inside.addSubnet("fe80::", 10, "ipv6");
inside.addAddress("fd00:ec2::254", "ipv6");

/** True for `localhost` and for addresses of the loopback interface, with or without a port. */
export function isLoopback(host: string): boolean {
  const name = host.replace(/:\d+$/, "").replace(/^\[|\]$/g, "");
  return name === "localhost" || name.endsWith(".localhost") || isIn(loopback, name);
}

export function isInsideAddress(address: string): boolean {
  return isIn(inside, address);
}

function isIn(list: net.BlockList, address: string): boolean {
  const plain = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1] ?? address;
  const family = net.isIP(plain);
  return family !== 0 && list.check(plain, family === 6 ? "ipv6" : "ipv4");
}

/** An address that only this host and its cloud should reach. */
export class InsideAddress extends Error {}

/** Resolves names as usual, and fails for one that leads to an address of this host or its cloud. */
export const lookupOutside: net.LookupFunction = (hostname, options, callback) => {
  dns.lookup(hostname, { ...options, all: true }, (error, found) => {
    if (error) return callback(error, "", 0);
    const hit = found.find(({ address }) => isInsideAddress(address));
    if (hit)
      return callback(
        new InsideAddress(`"${hostname}", which has the address ${hit.address} of this host`),
        "",
        0,
      );
    if (options.all) return callback(null, found);
    const [first] = found;
    return first ? callback(null, first.address, first.family) : callback(new Error("no address"), "", 0);
  });
};
