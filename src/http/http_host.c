/*
 * Hosts of requests: reading them, and comparing them with a server's names.
 */
#include "http/http_host.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static bool http_host_is_port(struct idem_http_text text) {
    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] < '0' || text.at[i] > '9')
            return false;
    return true;
}

bool idem_http_host_read(struct idem_http_text value, struct idem_http_text *ret) {
    bool bracket = value.len > 0 && value.at[0] == '[';
    const char *end = value.len == 0 ? NULL : memchr(value.at, bracket ? ']' : ':', value.len);
    struct idem_http_text host = value, port;

    if (bracket && end == NULL)
        return false;
    if (end != NULL) {
        host.len = (size_t)(end - value.at) + bracket;
        port = (struct idem_http_text){value.at + host.len, value.len - host.len};
        if (port.len > 0 && port.at[0] != ':')
            return false;
        port = (struct idem_http_text){port.at + (port.len > 0), port.len - (port.len > 0)};
        if (!http_host_is_port(port))
            return false;
    }
    if (host.len > 1 && host.at[host.len - 1] == '.')
        host.len--;
    for (size_t i = 0; i < host.len; i++)
        if ((unsigned char)host.at[i] <= ' ' || host.at[i] == 0x7f || host.at[i] == '/')
            return false;
    *ret = host;
    return true;
}

static bool http_host_ends_with(struct idem_http_text text, struct idem_http_text with) {
    size_t skip = text.len < with.len ? 0 : text.len - with.len;

    return idem_http_same((struct idem_http_text){text.at + skip, text.len - skip}, with);
}

bool idem_http_host_is_plain(struct idem_http_text host) {
    unsigned char address[16];
    char text[64];

    if (idem_http_same(host, IDEM_HTTP_TEXT("localhost")) ||
        http_host_ends_with(host, IDEM_HTTP_TEXT(".localhost")))
        return true;
    if (host.len > 1 && host.at[0] == '[' && host.at[host.len - 1] == ']')
        host = (struct idem_http_text){host.at + 1, host.len - 2};
    if (host.len >= sizeof(text))
        return false;
    snprintf(text, sizeof(text), "%.*s", (int)host.len, host.at);
    return inet_pton(AF_INET, text, address) == 1 || inet_pton(AF_INET6, text, address) == 1;
}

bool idem_http_host_matches(struct idem_http_text host, struct idem_http_text name) {
    struct idem_http_text part = name;

    if (name.len > 1 && name.at[0] == '*') { /* the bare name does not match */
        part = (struct idem_http_text){name.at + 1, name.len - 1};
        return host.len > part.len && http_host_ends_with(host, part);
    }
    if (name.len > 1 && name.at[0] == '.') {
        part = (struct idem_http_text){name.at + 1, name.len - 1};
        return idem_http_same(host, part) || http_host_ends_with(host, name);
    }
    if (name.len > 1 && name.at[name.len - 1] == '*') {
        part.len--;
        return host.len > part.len &&
               idem_http_same((struct idem_http_text){host.at, part.len}, part);
    }
    return name.len > 0 && idem_http_same(host, name);
}
