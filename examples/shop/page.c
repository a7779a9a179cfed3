/*
 * The shop's pages for people: its page (page.html, page.css and page.js, which
 * the build turns into C strings), the page that responds to a form, and
 * reading a form. User input is escaped before it is shown.
 */
#include "page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char html[] =
#include "page.html.h"
    ;
static const char css[] =
#include "page.css.h"
    ;
static const char script[] =
#include "page.js.h"
    ;

const struct page *page_find(const char *path) {
    static const struct page pages[] = {{"/", "text/html; charset=utf-8", html},
                                        {"/page.css", "text/css; charset=utf-8", css},
                                        {"/page.js", "text/javascript; charset=utf-8", script}};

    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
        if (strcmp(path, pages[i].path) == 0)
            return &pages[i];
    return NULL;
}

static void put_escaped(FILE *out, const char *text) {
    for (; *text != '\0'; text++) {
        if (strchr("&<>\"'", *text) != NULL)
            fprintf(out, "&#%d;", *text);
        else
            fputc(*text, out);
    }
}

char *page_say(const char *title, const char *text) {
    char *page = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&page, &len);

    if (out == NULL)
        return NULL;
    fputs("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n"
          "<link rel=\"icon\" href=\"data:,\">\n<link rel=\"stylesheet\" "
          "href=\"/page.css\">\n<title>",
          out);
    put_escaped(out, title);
    fputs("</title>\n<main class=\"answer card\">\n<h1>", out);
    put_escaped(out, title);
    fputs("</h1>\n<p>", out);
    put_escaped(out, text);
    fputs("</p>\n<p><a class=\"button\" href=\"/\">Back to the shop</a></p>\n</main>\n</html>",
          out);
    if (fclose(out) != 0) {
        free(page);
        return NULL;
    }
    return page;
}

static int hex(char c) {
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *at = c == '\0' ? NULL : strchr(digits, c);

    return at == NULL ? -1 : (int)((at - digits) % 16);
}

bool form_field(const char *form, const char *name, char *value, size_t size) {
    size_t len = strlen(name), n = 0;
    const char *at = form;

    while (strncmp(at, name, len) != 0 || at[len] != '=') {
        at = strchr(at, '&');
        if (at++ == NULL)
            return false;
    }
    for (at += len + 1; *at != '\0' && *at != '&'; at++, n++) {
        if (n + 1 >= size)
            return false;
        value[n] = *at == '+' ? ' ' : *at;
        if (*at != '%')
            continue;
        if (hex(at[1]) < 0 || hex(at[2]) < 0 || (hex(at[1]) == 0 && hex(at[2]) == 0))
            return false;
        value[n] = (char)(hex(at[1]) * 16 + hex(at[2]));
        at += 2;
    }
    value[n] = '\0';
    return true;
}
