/*
 * Upper and lower case, where one character maps to one character, in every language but Turkish:
 * ASCII, Latin-1, Cyrillic, and scripts without case. All else (sharp s, sigma at the end of a
 * word...) is refused.
 */
#include "expr/expr_case.h"

#include <stddef.h>

static const struct range {
    uint32_t first, last;
    int32_t to_upper, to_lower;
} ranges[] = {
    {0x0, 0x40, 0, 0},        {'A', 'Z', 0, 32},        {0x5b, 0x60, 0, 0},
    {'a', 'z', -32, 0},       {0x7b, 0xb4, 0, 0},       {0xb6, 0xbf, 0, 0},
    {0xc0, 0xd6, 0, 32},      {0xd7, 0xd7, 0, 0},       {0xd8, 0xde, 0, 32},
    {0xe0, 0xf6, -32, 0},     {0xf7, 0xf7, 0, 0},       {0xf8, 0xfe, -32, 0},
    {0x400, 0x40f, 0, 80},    {0x410, 0x42f, 0, 32},    {0x430, 0x44f, -32, 0},
    {0x450, 0x45f, -80, 0},   {0x590, 0x6ff, 0, 0},     /* Hebrew, Arabic */
    {0x900, 0xeff, 0, 0},                               /* India, Thai, Lao */
    {0x2000, 0x206f, 0, 0},   {0x20a0, 0x20cf, 0, 0},   /* punctuation, currencies */
    {0x3000, 0xa4cf, 0, 0},   {0xac00, 0xd7a3, 0, 0},   /* China, Japan, Korea */
    {0x1f300, 0x1faff, 0, 0}, {0x20000, 0x2a6df, 0, 0}, /* emoji, more ideographs */
};

static const struct range *case_find_range(uint32_t c) {
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (c >= ranges[i].first && c <= ranges[i].last)
            return &ranges[i];
    return NULL;
}

bool idem_case_upper(uint32_t c, uint32_t *ret) {
    const struct range *range = case_find_range(c);

    if (range != NULL)
        *ret = (uint32_t)((int32_t)c + range->to_upper);
    return range != NULL;
}

bool idem_case_lower(uint32_t c, uint32_t *ret) {
    const struct range *range = case_find_range(c);

    if (range != NULL)
        *ret = (uint32_t)((int32_t)c + range->to_lower);
    return range != NULL;
}
