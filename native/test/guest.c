/*
 * Plays a guest behind a tap: speaks Ethernet, ARP, IP, TCP, UDP and ICMP through the descriptor, without a VM.
 *
 * test-guest FD   answers each line on stdin with one line on stdout:
 *   tcp SOURCE ADDRESS PORT          dials: "open", "refused" or "silence"; an open connection is kept
 *   say TEXT                         sends TEXT on the open connection, prints the answer
 *   udp SOURCE ADDRESS PORT TEXT     prints "answer FROM PORT TEXT", "unreachable" or "silence"
 *   arp SOURCE                       asks for the gateway's MAC: "answered" or "silence"
 *   ping ADDRESS                     prints "pong" or "silence"
 *   accept PORT                      waits for a connection to the guest, prints "accepted FROM"
 */
#include <arpa/inet.h>
#include <net/ethernet.h>
#include <netinet/if_ether.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SILENCE_MS 700

static const uint8_t guest_mac[6] = {0x02, 0xfc, 0, 0, 0, 1};
static const uint8_t gateway_mac[6] = {0x52, 0x55, 0x0a, 0, 2, 2};
#define GUEST "10.0.2.15"

static int tap;
static bool answered; /* an ARP request */
static uint16_t next_port = 40000;
static struct {
    uint32_t here, there;
    uint16_t port, remote;
    uint32_t sequence, acknowledged;
} connection;

struct packet {
    struct ethhdr ethernet;
    struct iphdr ip;
    union {
        struct tcphdr tcp;
        struct udphdr udp;
        struct icmphdr icmp;
        uint8_t bytes[1400];
    };
} __attribute__((packed));

struct arp {
    struct ethhdr ethernet;
    struct ether_arp arp;
} __attribute__((packed));

static uint32_t sum(const void *data, size_t bytes, uint32_t total)
{
    const uint8_t *at = data;
    for (size_t i = 0; i + 1 < bytes; i += 2)
        total += (uint32_t)(at[i] << 8 | at[i + 1]);
    return bytes % 2 ? total + (uint32_t)(at[bytes - 1] << 8) : total;
}

static uint16_t fold(uint32_t total)
{
    while (total >> 16)
        total = (total & 0xffff) + (total >> 16);
    return htons((uint16_t)~total);
}

static void arp(uint16_t operation, uint32_t here, const uint8_t *to_mac, uint32_t to)
{
    struct arp frame = {0};
    memcpy(frame.ethernet.h_dest, to_mac, 6);
    memcpy(frame.ethernet.h_source, guest_mac, 6);
    frame.ethernet.h_proto = htons(ETH_P_ARP);
    frame.arp.ea_hdr = (struct arphdr){htons(1), htons(ETH_P_IP), 6, 4, htons(operation)};
    memcpy(frame.arp.arp_sha, guest_mac, 6);
    memcpy(frame.arp.arp_spa, &here, 4);
    memcpy(frame.arp.arp_tha, to_mac, 6);
    memcpy(frame.arp.arp_tpa, &to, 4);
    if (write(tap, &frame, sizeof frame) < 0)
        perror("arp");
}

static void send_packet(struct packet *packet, uint8_t protocol, uint32_t from, uint32_t to, size_t bytes)
{
    memcpy(packet->ethernet.h_dest, gateway_mac, 6);
    memcpy(packet->ethernet.h_source, guest_mac, 6);
    packet->ethernet.h_proto = htons(ETH_P_IP);
    packet->ip = (struct iphdr){.version = 4, .ihl = 5, .ttl = 64, .protocol = protocol, .saddr = from, .daddr = to};
    packet->ip.tot_len = htons((uint16_t)(sizeof packet->ip + bytes));
    packet->ip.check = fold(sum(&packet->ip, sizeof packet->ip, 0));
    uint32_t pseudo = protocol == IPPROTO_ICMP ? 0 : sum(&packet->ip.saddr, 8, (uint32_t)(protocol + bytes));
    uint16_t check = fold(sum(packet->bytes, bytes, pseudo));
    if (protocol == IPPROTO_TCP)
        packet->tcp.check = check;
    else if (protocol == IPPROTO_UDP)
        packet->udp.check = check;
    else
        packet->icmp.checksum = check;
    if (write(tap, packet, sizeof packet->ethernet + sizeof packet->ip + bytes) < 0)
        perror("write");
}

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The next IP packet, or false after the deadline. Answers ARP meanwhile. */
static bool receive(struct packet *packet, long deadline)
{
    for (;;) {
        struct pollfd wait = {.fd = tap, .events = POLLIN};
        long left = deadline - now_ms();
        if (left <= 0 || poll(&wait, 1, (int)left) <= 0)
            return false;
        memset(packet, 0, sizeof *packet);
        ssize_t n = read(tap, packet, sizeof *packet);
        const struct arp *frame = (void *)packet;
        if (n >= (ssize_t)sizeof *frame && packet->ethernet.h_proto == htons(ETH_P_ARP)) {
            uint32_t who, from;
            memcpy(&who, frame->arp.arp_tpa, 4);
            memcpy(&from, frame->arp.arp_spa, 4);
            if (frame->arp.ea_hdr.ar_op == htons(ARPOP_REQUEST) && who == inet_addr(GUEST))
                arp(ARPOP_REPLY, who, frame->ethernet.h_source, from);
            else if (frame->arp.ea_hdr.ar_op == htons(ARPOP_REPLY))
                answered = true;
        } else if (n > (ssize_t)(sizeof packet->ethernet + sizeof packet->ip) &&
                   packet->ethernet.h_proto == htons(ETH_P_IP))
            return true;
    }
}

/* Sends a segment of the connection. */
static void segment(uint8_t flags, const char *text)
{
    struct packet packet = {0};
    size_t bytes = strlen(text);
    packet.tcp.source = htons(connection.port);
    packet.tcp.dest = htons(connection.remote);
    packet.tcp.seq = htonl(connection.sequence);
    packet.tcp.ack_seq = htonl(connection.acknowledged);
    packet.tcp.doff = 5;
    packet.bytes[13] = flags;
    packet.tcp.window = htons(60000);
    memcpy(packet.bytes + 20, text, bytes);
    send_packet(&packet, IPPROTO_TCP, connection.here, connection.there, 20 + bytes);
    connection.sequence += (uint32_t)bytes + ((flags & (TH_SYN | TH_FIN)) != 0);
}

static bool ours(const struct packet *packet)
{
    return packet->ip.protocol == IPPROTO_TCP && packet->ip.saddr == connection.there &&
           packet->tcp.source == htons(connection.remote) && packet->tcp.dest == htons(connection.port);
}

static void dial(const char *source, const char *address, uint16_t port)
{
    struct packet packet;
    long deadline = now_ms() + SILENCE_MS;
    connection.here = inet_addr(source);
    connection.there = inet_addr(address);
    connection.port = next_port++;
    connection.remote = port;
    connection.sequence = 1000;
    connection.acknowledged = 0;
    segment(TH_SYN, "");
    while (receive(&packet, deadline)) {
        if (!ours(&packet))
            continue;
        if (packet.tcp.rst) {
            puts("refused");
            return;
        }
        connection.acknowledged = ntohl(packet.tcp.seq) + 1;
        segment(TH_ACK, "");
        puts("open");
        return;
    }
    puts("silence");
}

static void talk(const char *text)
{
    struct packet packet;
    long deadline = now_ms() + 5 * SILENCE_MS;
    segment(TH_ACK | TH_PUSH, text);
    while (receive(&packet, deadline)) {
        size_t header = packet.tcp.doff * 4u, total = ntohs(packet.ip.tot_len) - sizeof packet.ip;
        if (!ours(&packet) || total <= header || header > total || total >= sizeof packet.bytes)
            continue;
        connection.acknowledged = ntohl(packet.tcp.seq) + (uint32_t)(total - header);
        segment(TH_ACK, "");
        printf("%.*s\n", (int)(total - header), packet.bytes + header);
        return;
    }
    puts("silence");
}

static void datagram(const char *source, const char *address, uint16_t port, const char *text)
{
    struct packet packet = {0};
    size_t bytes = strlen(text);
    uint16_t here = next_port++;
    long deadline = now_ms() + SILENCE_MS;
    packet.udp.source = htons(here);
    packet.udp.dest = htons(port);
    packet.udp.len = htons((uint16_t)(8 + bytes));
    memcpy(packet.bytes + 8, text, bytes);
    send_packet(&packet, IPPROTO_UDP, inet_addr(source), inet_addr(address), 8 + bytes);
    while (receive(&packet, deadline)) {
        if (packet.ip.protocol == IPPROTO_ICMP && packet.icmp.type == ICMP_DEST_UNREACH) {
            puts("unreachable");
            return;
        }
        if (packet.ip.protocol == IPPROTO_UDP && packet.udp.dest == htons(here)) {
            struct in_addr from = {packet.ip.saddr};
            printf("answer %s %u %.*s\n", inet_ntoa(from), ntohs(packet.udp.source), ntohs(packet.udp.len) - 8,
                   packet.bytes + 8);
            return;
        }
    }
    puts("silence");
}

static void ping(const char *address)
{
    struct packet packet = {0};
    long deadline = now_ms() + SILENCE_MS;
    packet.icmp.type = ICMP_ECHO;
    send_packet(&packet, IPPROTO_ICMP, inet_addr(GUEST), inet_addr(address), 16);
    while (receive(&packet, deadline))
        if (packet.ip.protocol == IPPROTO_ICMP && packet.icmp.type == ICMP_ECHOREPLY) {
            puts("pong");
            return;
        }
    puts("silence");
}

static void accept_connection(uint16_t port)
{
    struct packet packet;
    long deadline = now_ms() + 10 * SILENCE_MS;
    while (receive(&packet, deadline)) {
        if (packet.ip.protocol != IPPROTO_TCP || !packet.tcp.syn || packet.tcp.dest != htons(port))
            continue;
        struct in_addr from = {packet.ip.saddr};
        connection.here = packet.ip.daddr;
        connection.there = packet.ip.saddr;
        connection.port = port;
        connection.remote = ntohs(packet.tcp.source);
        connection.sequence = 5000;
        connection.acknowledged = ntohl(packet.tcp.seq) + 1;
        segment(TH_SYN | TH_ACK, "");
        printf("accepted %s\n", inet_ntoa(from));
        return;
    }
    puts("silence");
}

int main(int argc, char **argv)
{
    char line[1024], a[64], b[64], text[512];
    static const uint8_t everyone[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    unsigned port;
    if (argc != 2)
        return 2;
    tap = atoi(argv[1]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    arp(ARPOP_REQUEST, inet_addr(GUEST), everyone, inet_addr("10.0.2.2"));
    puts("ready");
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "tcp %63s %63s %u", a, b, &port) == 3)
            dial(a, b, (uint16_t)port);
        else if (sscanf(line, "say %511[^\n]", text) == 1)
            talk(text);
        else if (sscanf(line, "udp %63s %63s %u %511[^\n]", a, b, &port, text) == 4)
            datagram(a, b, (uint16_t)port, text);
        else if (sscanf(line, "arp %63s", a) == 1) {
            struct packet packet;
            answered = false;
            arp(ARPOP_REQUEST, inet_addr(a), everyone, inet_addr("10.0.2.2"));
            receive(&packet, now_ms() + SILENCE_MS);
            puts(answered ? "answered" : "silence");
        } else if (sscanf(line, "ping %63s", a) == 1)
            ping(a);
        else if (sscanf(line, "accept %u", &port) == 1)
            accept_connection((uint16_t)port);
        else
            puts("?");
    }
    return 0;
}
