/* What the shop shows to people: page.c. */
#ifndef SHOP_PAGE_H
#define SHOP_PAGE_H

#include <stdbool.h>
#include <stddef.h>

/* Only what is the shop's own is loaded, and no script that stands in the page. */
#define PAGE_POLICY                                                                                \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "                \
    "form-action 'self'; img-src data:; base-uri 'none'; frame-ancestors 'none'"

struct page {
    const char *path, *type, *text;
};

/* The file that is served at this path, or NULL. */
const struct page *page_find(const char *path);

/* A page that says one thing, and leads back. Texts are escaped here; the caller frees it, NULL is
   no memory. */
char *page_say(const char *title, const char *text);

/* The value of a field of an urlencoded form. False where it is not there, is malformed, has a NUL,
   or is too long. */
bool form_field(const char *form, const char *name, char *value, size_t size);

#endif
