/* Any bytes as text for people: no invisible character is left, in any form. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log_line.h"
#include "base/units.h"
#include "base/visible.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void visible_check(const char *text, size_t len) {
    uint32_t c;
    size_t n;

    for (size_t at = 0; at < len; at += n) {
        n = idem_utf8_next(text + at, len - at, &c);
        assert(n != 0 && idem_visible(c));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char text[128], line[IDEM_LINE_MAX], code[IDEM_VISIBLE_JSON];
    size_t len = idem_visible_copy((const char *)data, size, '?', text, sizeof(text));
    char *copy = malloc(size + 1);

    assert(len < sizeof(text) && strlen(text) == len);
    visible_check(text, len);
    if (copy == NULL)
        return 0;
    memcpy(copy, data, size);
    copy[size] = '\0';
    len = idem_line_print(&(struct idem_line){.words = "run", .label = copy}, line, sizeof(line));
    visible_check(line, len);
    len = idem_visible_copy(copy, size, ' ', copy, size + 1); /* in place */
    visible_check(copy, len);
    free(copy);
    if (size >= 3) {
        idem_visible_json((uint32_t)(data[0] << 16 | data[1] << 8 | data[2]) % 0x110000, code);
        assert(strlen(code) == 6 || strlen(code) == 12);
    }
    return 0;
}
