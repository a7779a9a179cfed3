/* The pages that the shop shows to people: page.c. */
#ifndef SHOP_PAGE_H
#define SHOP_PAGE_H

#include <stdbool.h>
#include <stddef.h>

/* The browser loads only the shop's own files, and no script inside the page. */
#define PAGE_POLICY                                                                                \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "                \
    "form-action 'self'; img-src data:; base-uri 'none'; frame-ancestors 'none'"

struct page {
    const char *path, *type, *text;
};

/* The file that is served at this path, or NULL. */
const struct page *page_find(const char *path);

/* A page with one message, and a link back. The texts are escaped here. The caller frees the
 * page; NULL: no memory. */
char *page_say(const char *title, const char *text);

/* Reads a field of an urlencoded form. False if the field is missing, is malformed, has a NUL,
 * or is too long. */
bool form_field(const char *form, const char *name, char *value, size_t size);

#endif
