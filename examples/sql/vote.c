/*
 * One vote for each person: the first that is cast.
 *
 *     vote [-d URL] init
 *     vote [-d URL] cast PERSON CHOICE
 *     vote [-d URL] count CHOICE
 *
 * The table itself is enough. The voter is its primary key, and idem_sql_insert() reports whether
 * the row is new or was there; any other failure is an error. No transaction, no key of the
 * caller's, and no row of Idem's own.
 */
#include <err.h>
#include <stdio.h>
#include <string.h>

#include "db.h"

static int cast(struct idem_sql conn, const char *person, const char *choice) {
    const struct idem_sql_column key = {"person", idem_sql_text(person)};
    const struct idem_sql_column value = {"choice", idem_sql_text(choice)};
    const struct idem_sql_row row = {
        .table = "vote", .key = &key, .key_n = 1, .values = &value, .values_n = 1};
    enum idem_sql_verdict verdict;
    struct db_answer answer;
    struct idem_error error;

    if (idem_sql_insert(conn, &row, &verdict, &error) < 0)
        errx(1, "%s", error.text); /* any failure: repeating the vote does no harm */
    if (verdict == IDEM_SQL_INSERTED) {
        printf("first: %s\n", choice);
        return 0;
    }
    if (DB_SAY(conn, &answer, "SELECT choice FROM vote WHERE person = ?", idem_sql_text(person)) <
            0 ||
        !answer.found)
        errx(1, "the vote that was there is gone");
    printf("duplicate: %s\n", answer.text);
    return 0;
}

/* With its default comparison, MySQL takes "Ann" and "ann " for one person. */
static void table_make(struct idem_sql conn) {
    db_do(conn, conn.kind == IDEM_SQL_MYSQL
                    ? "CREATE TABLE vote (person VARBINARY(100) PRIMARY KEY, "
                      "choice VARCHAR(100) NOT NULL)"
                    : "CREATE TABLE vote (person VARCHAR(100) PRIMARY KEY, "
                      "choice VARCHAR(100) NOT NULL)");
}

int main(int argc, char **argv) {
    struct idem_sql conn = db_open(db_url(&argc, argv));
    int status = 0;

    if (argc == 2 && strcmp(argv[1], "init") == 0)
        table_make(conn);
    else if (argc == 4 && strcmp(argv[1], "cast") == 0)
        status = cast(conn, argv[2], argv[3]);
    else if (argc == 3 && strcmp(argv[1], "count") == 0)
        db_print(conn, "SELECT count(*) FROM vote WHERE choice = ?", idem_sql_text(argv[2]));
    else
        errx(64, "[-d URL] init | cast PERSON CHOICE | count CHOICE");
    idem_sql_close(conn);
    return status;
}
