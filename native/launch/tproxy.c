/*
 * One rule for the kernel's packet filter: every TCP connection in the namespace goes to the listener of the
 * proxy, which sees the address and the port that were dialled.
 *
 * If a packet belongs to a socket that is not transparent (slirp's, or ours into the guest) or if there is no
 * listener, the rule does not match and the packet takes its usual way.
 */
#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

#include "launch.h"

#define TABLE "forkd"
#define CHAIN "prerouting"
#define PRIORITY_MANGLE (-150)

static void batch(struct netlink *netlink, uint16_t type)
{
    struct nfgenmsg *header = netlink_message(netlink, type, 0, sizeof *header);
    header->res_id = htons(NFNL_SUBSYS_NFTABLES);
}

static void command(struct netlink *netlink, uint16_t type, uint16_t flags)
{
    uint16_t full = (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type);
    struct nfgenmsg *header = netlink_message(netlink, full, flags, sizeof *header);
    header->nfgen_family = NFPROTO_IPV4;
    header->version = NFNETLINK_V0;
}

static void text(struct netlink *netlink, uint16_t type, const char *value)
{
    netlink_attribute(netlink, type, value, strlen(value) + 1);
}

static void u32(struct netlink *netlink, uint16_t type, uint32_t value)
{
    uint32_t big_endian = htonl(value);
    netlink_attribute(netlink, type, &big_endian, sizeof big_endian);
}

/* Starts an expression of the rule; the returned places are for end(). */
struct expression {
    size_t element, data;
};

static struct expression begin(struct netlink *netlink, const char *name)
{
    struct expression expression = {.element = netlink_enter(netlink, NFTA_LIST_ELEM)};
    text(netlink, NFTA_EXPR_NAME, name);
    expression.data = netlink_enter(netlink, NFTA_EXPR_DATA);
    return expression;
}

static void end(struct netlink *netlink, struct expression expression)
{
    netlink_leave(netlink, expression.data);
    netlink_leave(netlink, expression.element);
}

static void value(struct netlink *netlink, uint16_t type, const void *bytes, size_t length)
{
    size_t data = netlink_enter(netlink, type);
    netlink_attribute(netlink, NFTA_DATA_VALUE, bytes, length);
    netlink_leave(netlink, data);
}

static void add_expressions(struct netlink *netlink)
{
    uint8_t tcp = IPPROTO_TCP;
    uint16_t port = htons(PROXY_PORT);

    struct expression expression = begin(netlink, "meta");
    u32(netlink, NFTA_META_KEY, NFT_META_L4PROTO);
    u32(netlink, NFTA_META_DREG, NFT_REG_1);
    end(netlink, expression);

    expression = begin(netlink, "cmp");
    u32(netlink, NFTA_CMP_SREG, NFT_REG_1);
    u32(netlink, NFTA_CMP_OP, NFT_CMP_EQ);
    value(netlink, NFTA_CMP_DATA, &tcp, sizeof tcp);
    end(netlink, expression);

    expression = begin(netlink, "immediate");
    u32(netlink, NFTA_IMMEDIATE_DREG, NFT_REG_1);
    value(netlink, NFTA_IMMEDIATE_DATA, &port, sizeof port);
    end(netlink, expression);

    expression = begin(netlink, "tproxy");
    u32(netlink, NFTA_TPROXY_FAMILY, NFPROTO_IPV4);
    u32(netlink, NFTA_TPROXY_REG_PORT, NFT_REG_1);
    end(netlink, expression);
}

int tproxy_add(void)
{
    struct netlink netlink;
    netlink_open(&netlink, NETLINK_NETFILTER);
    batch(&netlink, NFNL_MSG_BATCH_BEGIN);

    command(&netlink, NFT_MSG_NEWTABLE, NLM_F_CREATE);
    text(&netlink, NFTA_TABLE_NAME, TABLE);

    command(&netlink, NFT_MSG_NEWCHAIN, NLM_F_CREATE);
    text(&netlink, NFTA_CHAIN_TABLE, TABLE);
    text(&netlink, NFTA_CHAIN_NAME, CHAIN);
    text(&netlink, NFTA_CHAIN_TYPE, "filter");
    size_t hook = netlink_enter(&netlink, NFTA_CHAIN_HOOK);
    u32(&netlink, NFTA_HOOK_HOOKNUM, NF_INET_PRE_ROUTING);
    u32(&netlink, NFTA_HOOK_PRIORITY, (uint32_t)PRIORITY_MANGLE);
    netlink_leave(&netlink, hook);

    command(&netlink, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND);
    text(&netlink, NFTA_RULE_TABLE, TABLE);
    text(&netlink, NFTA_RULE_CHAIN, CHAIN);
    size_t expressions = netlink_enter(&netlink, NFTA_RULE_EXPRESSIONS);
    add_expressions(&netlink);
    netlink_leave(&netlink, expressions);

    batch(&netlink, NFNL_MSG_BATCH_END);
    return netlink_send(&netlink);
}
