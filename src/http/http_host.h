/*
 * The host that a client names in a request, for pages that only their own names may lead to. The
 * owner of a name controls its DNS, and can lead a browser to any server (DNS rebinding); the
 * scripts of that name's site may then read what the server responds.
 */
#ifndef IDEM_HTTP_HTTP_HOST_H
#define IDEM_HTTP_HTTP_HOST_H

#include "http/http_field.h"

/* Reads a Host field: the name or address, without the port and a dot at its end. An address of
   IPv6 keeps its brackets. *ret points into the value, and is untouched if false. */
bool idem_http_host_read(struct idem_http_text value, struct idem_http_text *ret);

/* True for a host without a DNS name (no port): an address, or localhost. */
bool idem_http_host_is_plain(struct idem_http_text host);

/* True if a host matches a name of the server: name, .name, *.name or name.* */
bool idem_http_host_matches(struct idem_http_text host, struct idem_http_text name);

#endif
