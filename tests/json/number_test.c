/*
 * Numbers as text: what the JDK prints, what RFC 8785 prints, in any locale.
 */
#include "json/json_number.h"

#include <locale.h>
#include <math.h>

#include "test.h"

static double double_of(uint64_t bits) {
    double d;

    memcpy(&d, &bits, sizeof(d));
    return d;
}

static float float_of(uint32_t bits) {
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

TEST(doubles_and_floats_print_as_the_jdk_printed_them) {
    FILE *file = fopen(JAVA_NUMBERS, "r");
    char line[256], want[64], want_float[64], got[IDEM_NUMBER_MAX];
    unsigned long long bits;
    size_t n = 0;

    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (line[0] == '#')
            continue;
        CHECK_INT(sscanf(line, "%llx %63s %63s", &bits, want, want_float), 3);
        CHECK_INT(idem_number_java(double_of(bits), got), strlen(got));
        CHECK_STR(got, want);
        CHECK_INT(idem_number_java_float(float_of((uint32_t)bits), got), strlen(got));
        CHECK_STR(got, want_float);
        n++;
    }
    fclose(file);
    CHECK(n > 400);
}

/* RFC 8785, appendix B; and where forms change. */
static const struct {
    uint64_t bits;
    const char *text;
} es_numbers[] = {
    {0x0000000000000000, "0"},
    {0x8000000000000000, "0"},
    {0x0000000000000001, "5e-324"},
    {0x8000000000000001, "-5e-324"},
    {0x7fefffffffffffff, "1.7976931348623157e+308"},
    {0xffefffffffffffff, "-1.7976931348623157e+308"},
    {0x4340000000000000, "9007199254740992"},
    {0xc340000000000000, "-9007199254740992"},
    {0x4430000000000000, "295147905179352830000"},
    {0x44b52d02c7e14af5, "9.999999999999997e+22"},
    {0x44b52d02c7e14af6, "1e+23"},
    {0x44b52d02c7e14af7, "1.0000000000000001e+23"},
    {0x444b1ae4d6e2ef4e, "999999999999999700000"},
    {0x444b1ae4d6e2ef4f, "999999999999999900000"},
    {0x444b1ae4d6e2ef50, "1e+21"},
    {0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
    {0x3eb0c6f7a0b5ed8d, "0.000001"},
    {0x41b3de4355555553, "333333333.3333332"},
    {0x41b3de4355555554, "333333333.33333325"},
    {0x41b3de4355555555, "333333333.3333333"},
    {0x41b3de4355555556, "333333333.3333334"},
    {0x41b3de4355555557, "333333333.33333343"},
    {0xbecbf647612f3696, "-0.0000033333333333333333"},
    {0x43143ff3c1cb0959, "1424953923781206.2"},
    {0x3d30000000000000, "5.684341886080802e-14"}, /* a power of two: the text above it */
};

static void check_es(void) {
    char got[IDEM_NUMBER_MAX];

    for (size_t i = 0; i < sizeof(es_numbers) / sizeof(es_numbers[0]); i++) {
        CHECK_INT(idem_number_es(double_of(es_numbers[i].bits), got), strlen(got));
        CHECK_STR(got, es_numbers[i].text);
    }
}

TEST(doubles_print_as_ecmascript_prints_them) {
    check_es();
}

TEST(what_is_printed_reads_back_as_the_same_double) {
    uint64_t bits = 88172645463325252u;
    char text[IDEM_NUMBER_MAX];

    for (unsigned i = 0; i < 20000; i++) {
        double d;

        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        d = double_of(bits);
        if (!isfinite(d))
            continue;
        CHECK(idem_number_read(text, idem_number_es(d, text)) == d);
        CHECK(idem_number_read(text, idem_number_java(d, text)) == d);
    }
}

/* Where the point is a comma. */
TEST(the_locale_of_the_program_changes_nothing) {
    static const char *const names[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "nl_NL.UTF-8"};
    bool found = false;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !found; i++)
        found = setlocale(LC_ALL, names[i]) != NULL && localeconv()->decimal_point[0] == ',';
    if (!found)
        fprintf(stderr, "# no locale with a comma here\n");
    check_es();
    CHECK(idem_number_read("1.5e3", 5) == 1500);
}

TEST(a_number_of_a_thousand_digits_is_read) {
    char text[1001];

    memset(text, '1', sizeof(text) - 1);
    text[1] = '.';
    text[1000] = '\0';
    CHECK(idem_number_read(text, 1000) == 1.1111111111111111);
    CHECK(isinf(idem_number_read("1e400", 5)));
}

TEST_MAIN
