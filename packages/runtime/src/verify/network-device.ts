/** The network device of a guest; all children have the same addresses, each in its own namespace. */
import { CannotCheck, type Subject } from "./hazard.ts";

export const guestAddress = "10.0.2.15";
export const guestBroadcast = "10.0.2.255";
/** for the programs of the checks */
export const checkPort = 47_613;

/** The MAC address of the device. Without one neither addresses nor connections can be shared. */
export async function requireDevice(subject: Subject): Promise<string> {
  const address = await subject.read("/sys/class/net/eth0/address");
  if (address === undefined) throw new CannotCheck("no network device", { absent: true });
  return address.trim();
}
