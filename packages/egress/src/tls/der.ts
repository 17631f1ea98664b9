/** X.509 certificates in DER, written by hand: the few forms that a private CA needs. Pure. */
import { createHash, createPublicKey, sign, type KeyObject } from "node:crypto";

const tags = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  oid: 0x06,
  utf8String: 0x0c,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
} as const;

const oids = {
  commonName: "2.5.4.3",
  organization: "2.5.4.10",
  ecdsaWithSha256: "1.2.840.10045.4.3.2",
  subjectKeyIdentifier: "2.5.29.14",
  keyUsage: "2.5.29.15",
  subjectAltName: "2.5.29.17",
  basicConstraints: "2.5.29.19",
  authorityKeyIdentifier: "2.5.29.35",
  extendedKeyUsage: "2.5.29.37",
  serverAuth: "1.3.6.1.5.5.7.3.1",
} as const;

function encode(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(parts);
  if (content.length < 0x80) return Buffer.concat([Buffer.from([tag, content.length]), content]);
  const digits = content.length.toString(16);
  const length = Buffer.from(digits.length % 2 === 0 ? digits : `0${digits}`, "hex");
  return Buffer.concat([Buffer.from([tag, 0x80 | length.length]), length, content]);
}

const sequence = (...parts: readonly Uint8Array[]): Buffer => encode(tags.sequence, ...parts);
const octets = (content: Uint8Array): Buffer => encode(tags.octetString, content);
const truth = encode(tags.boolean, Buffer.from([0xff]));
/** [number] of the enclosing type; `constructed` if it holds other elements. */
const context = (number: number, content: Uint8Array, constructed = true): Buffer =>
  encode((constructed ? 0xa0 : 0x80) | number, content);

/** A positive number in its shortest form. */
export function encodeInteger(bytes: Uint8Array): Buffer {
  let start = 0;
  while (start < bytes.length - 1 && bytes[start] === 0) start++;
  const digits = bytes.subarray(start);
  const isNegative = ((digits[0] ?? 0) & 0x80) !== 0;
  return encode(tags.integer, isNegative ? Buffer.from([0]) : Buffer.alloc(0), digits);
}

export function encodeOid(text: string): Buffer {
  const [first = 0, second = 0, ...rest] = text.split(".").map(Number);
  const bytes = [first * 40 + second, ...rest].flatMap((number) => {
    const groups = [number & 0x7f];
    for (let left = Math.floor(number / 128); left > 0; left = Math.floor(left / 128))
      groups.unshift((left & 0x7f) | 0x80);
    return groups;
  });
  return encode(tags.oid, Buffer.from(bytes));
}

/** UTCTime has two digits of the year; from 2050 on the other form is required. */
export function encodeTime(time: Date): Buffer {
  const digits = time.toISOString().replace(/[-:T]|\.\d+/g, "");
  return time.getUTCFullYear() < 2050
    ? encode(tags.utcTime, Buffer.from(digits.slice(2)))
    : encode(tags.generalizedTime, Buffer.from(digits));
}

/** The first bit is the highest one of the first byte; zero bits at the end are left out. */
function bits(byte: number): Buffer {
  const unused = 31 - Math.clz32(byte & -byte);
  return encode(tags.bitString, Buffer.from([unused, byte]));
}

function encodeName({ organization, commonName }: Name): Buffer {
  const attribute = (oid: string, text: string): Buffer =>
    encode(tags.set, sequence(encodeOid(oid), encode(tags.utf8String, Buffer.from(text))));
  return sequence(attribute(oids.organization, organization), attribute(oids.commonName, commonName));
}

function extension(oid: string, value: Buffer, isCritical = false): Buffer {
  return sequence(encodeOid(oid), ...(isCritical ? [truth] : []), octets(value));
}

export type Name = { readonly organization: string; readonly commonName: string };

/** SHA-256 of the public key, cut to the usual 20 bytes. */
export function keyIdentifier(publicKey: KeyObject): Buffer {
  const info = publicKey.export({ type: "spki", format: "der" });
  return createHash("sha256").update(info).digest().subarray(0, 20);
}

type CertificateFields = {
  /** 1 to 20 bytes, positive */
  readonly serial: Uint8Array;
  readonly subject: Name;
  readonly issuer: Name;
  readonly notBefore: Date;
  readonly notAfter: Date;
  readonly publicKey: KeyObject;
  /** P-256 */
  readonly issuerKey: KeyObject;
  /** undefined: a CA that signs only end certificates. Otherwise a server with this name. */
  readonly dnsName?: string | undefined;
};

export function writeCertificate(fields: CertificateFields): string {
  const algorithm = sequence(encodeOid(oids.ecdsaWithSha256));
  const version3 = context(0, encodeInteger(Buffer.from([2])));
  const toSign = sequence(
    version3,
    encodeInteger(fields.serial),
    algorithm,
    encodeName(fields.issuer),
    sequence(encodeTime(fields.notBefore), encodeTime(fields.notAfter)),
    encodeName(fields.subject),
    fields.publicKey.export({ type: "spki", format: "der" }),
    context(3, sequence(...extensionsOf(fields))),
  );
  const signature = sign("sha256", toSign, fields.issuerKey);
  const noUnusedBits = Buffer.from([0]);
  return toPem(sequence(toSign, algorithm, encode(tags.bitString, noUnusedBits, signature)));
}

const keyUsage = { digitalSignature: 0x80, keyCertSign: 0x04, crlSign: 0x02 } as const;

function extensionsOf({ publicKey, issuerKey, dnsName }: CertificateFields): Buffer[] {
  const issuerId = keyIdentifier(createPublicKey(issuerKey));
  const identifiers = [
    extension(oids.subjectKeyIdentifier, octets(keyIdentifier(publicKey))),
    extension(oids.authorityKeyIdentifier, sequence(context(0, issuerId, false))),
  ];
  if (dnsName === undefined) {
    const noFurtherCa = encodeInteger(Buffer.from([0]));
    return [
      extension(oids.basicConstraints, sequence(truth, noFurtherCa), true),
      extension(oids.keyUsage, bits(keyUsage.keyCertSign | keyUsage.crlSign), true),
      ...identifiers,
    ];
  }
  return [
    extension(oids.basicConstraints, sequence(), true),
    extension(oids.keyUsage, bits(keyUsage.digitalSignature), true),
    extension(oids.extendedKeyUsage, sequence(encodeOid(oids.serverAuth))),
    extension(oids.subjectAltName, sequence(context(2, Buffer.from(dnsName, "latin1"), false))),
    ...identifiers,
  ];
}

function toPem(der: Buffer): string {
  const lines = der.toString("base64").match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`;
}
