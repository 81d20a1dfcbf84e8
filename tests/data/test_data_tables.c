/* Tables: CSV and TSV files with names of columns. What is learned, samples against numbers
 * computed by hand, files that evaluate reads with the columns of training, and wrong files, each
 * with its line and column. */
#include "data_files.h"

#include <math.h>

#define TABLE                                                                                                          \
    "age,city,\"the \"\"income\"\"\",kind\n20,Ulm,1.5,young\n40,\"New\nYork\",,old\n60,,4.5,old\n80,Ulm,3,young\n"

static ls_table *learn(const char *text, ls_table_options options)
{
    ls_table *table = NULL;
    write_text(in_folder("t.csv"), text);
    if (ls_table_create_with(in_folder("t.csv"), options, &table) != LS_OK)
        fail_msg("%s", ls_last_error());
    return table;
}

static void assert_set(ls_dataset *data, const float *features, int64_t samples, int64_t width, const int64_t *labels)
{
    ls_rows *rows = NULL;
    if (ls_rows_create(data, 0, &rows) != LS_OK)
        fail_msg("%s", ls_last_error());
    const ls_element *base = ls_rows_base(rows);
    assert_array(&base->component[0], LS_F32, LS_SHAPE(samples, width), features,
                 (size_t)(samples * width) * sizeof *features);
    assert_int_equal(base->count, labels ? 2 : 1);
    if (labels)
        assert_array(&base->component[1], LS_I64, LS_SHAPE(samples), labels, (size_t)samples * sizeof *labels);
    ls_rows_destroy(rows);
    ls_dataset_destroy(data);
}

/* (x - mean) / deviation of 20 40 60 80, and of 1.5 4.5 3 with the median 3 for the missing one. */
static void expect(float out[4][5])
{
    const double age[] = { 20, 40, 60, 80 }, income[] = { 1.5, 3, 4.5, 3 };
    double wide = sqrt((900.0 + 100 + 100 + 900) / 4), narrow = sqrt((2.25 + 2.25 + 0) / 3);
    static const float city[4][3] = { { 0, 0, 1 }, { 0, 1, 0 }, { 1, 0, 0 }, { 0, 0, 1 } }; /* missing, New York, Ulm */
    for (int i = 0; i < 4; i++) {
        out[i][0] = (float)((age[i] - 50) / wide);
        memcpy(&out[i][1], city[i], sizeof city[i]);
        out[i][4] = (float)((income[i] - 3) / narrow);
    }
}

static void samples_of_a_table(void **state)
{
    (void)state;
    float want[4][5];
    const char *const *classes;
    int64_t count;
    expect(want);
    ls_table *table = learn(TABLE, (ls_table_options){ .label = NULL });
    ls_dataset *data = ls_from_table(table, in_folder("t.csv"));
    ls_table_destroy(table); /* the dataset keeps it */
    assert_int_equal(ls_dataset_classes(data, &classes, &count), LS_OK);
    assert_int_equal(count, 2);
    assert_string_equal(classes[0], "old");
    assert_string_equal(classes[1], "young");
    assert_set(data, &want[0][0], 4, 5, (int64_t[]){ 1, 0, 0, 1 });
}

/* Another file: other order of columns, more of them, a city that training did not have, no
 * labels; the columns are read from a file. A TSV file has the same meaning. */
static void another_file(void **state)
{
    (void)state;
    ls_table *table = learn(TABLE, (ls_table_options){ .label = NULL }), *loaded = NULL;
    assert_int_equal(ls_table_save(table, in_folder("t.json")), LS_OK);
    assert_int_equal(ls_table_load(in_folder("t.json"), &loaded), LS_OK);
    char *before = NULL, *after = NULL;
    assert_int_equal(ls_table_describe(table, &before), LS_OK);
    assert_int_equal(ls_table_describe(loaded, &after), LS_OK);
    assert_string_equal(before, after);
    assert_non_null(strstr(before, "city: text, 3 categories: (missing), New York, Ulm\n"));
    assert_non_null(strstr(before, "kind: label, 2 classes: old, young\n"));
    free(before);
    free(after);
    float want[4][5];
    expect(want);
    write_text(in_folder("u.csv"), "more,the \"income\",city,age\nx,3,Bonn,40\n");
    assert_set(ls_from_table(loaded, in_folder("u.csv")), (float[]){ want[1][0], 0, 0, 0, 0 }, 1, 5, NULL);
    write_text(in_folder("u.tsv"), "age\tcity\tthe \"income\"\tkind\n20\tUlm\t1.5\told\n");
    want[0][4] = (float)(-1.5 / sqrt(1.5));
    assert_set(ls_from_table(loaded, in_folder("u.tsv")), want[0], 1, 5, (int64_t[]){ 0 });
    ls_table_destroy(table);
    ls_table_destroy(loaded);
}

/* Statistics are those of the training part, also if others are in the file. */
static void training_part(void **state)
{
    (void)state;
    static const char *const same[] = { "a,y\n1,0\n3,1\n", "a,y\n1,0\n3,1\n100,1\n", "a,y\n1,0\n3,1\n100,1\n9,1\n" };
    const ls_table_options options[] = { { .label = "y" }, { .take = 2 }, { .validation_split = 0.5 } };
    for (int i = 0; i < 3; i++) {
        char *text = NULL;
        ls_table *table = learn(same[i], options[i]);
        assert_int_equal(ls_table_describe(table, &text), LS_OK);
        assert_non_null(strstr(text, "a: number, mean 2, standard deviation 1, median 2\n"));
        assert_non_null(strstr(text, "y: label, integer\n"));
        free(text);
        ls_table_destroy(table);
    }
}

/* A quote inside a field without quotes is a character; the next field may still have lines. */
static void quotes(void **state)
{
    (void)state;
    static char text[4000];
    const char *const *classes;
    int64_t count;
    snprintf(text, sizeof text, "a,b,c\n5\" pipe,1,\"x\n%0*d\"\n6\" pipe , 2 ,\"say \"\"hi\"\"\" \r\n", 3000, 7);
    ls_table *table = learn(text, (ls_table_options){ .label = NULL });
    ls_dataset *data = ls_from_table(table, in_folder("t.csv"));
    ls_table_destroy(table);
    assert_int_equal(ls_dataset_classes(data, &classes, &count), LS_OK);
    assert_int_equal(count, 2);
    assert_string_equal(classes[0], "say \"hi\"");
    assert_true(strlen(classes[1]) == 3002 && memcmp(classes[1], "x\n000", 5) == 0);
    assert_set(data, (float[]){ 1, 0, -1, 0, 1, 1 }, 2, 3, (int64_t[]){ 1, 0 });
}

static void options_of_columns(void **state)
{
    (void)state;
    ls_table *table = learn("id,zip,size,price\nx1,89073,10,1.5\nx2,53111,20,2\n",
                            (ls_table_options){ .label = "size", .drop = "id,price", .text = "zip" });
    assert_set(ls_from_table(table, in_folder("t.csv")), (float[]){ 0, 1, 1, 0 }, 2, 2, (int64_t[]){ 10, 20 });
    ls_table_destroy(table);
    table = learn("5.1,Iris-setosa\n4.9,Iris-virginica\n", (ls_table_options){ .label = NULL }); /* no header */
    assert_set(ls_from_table(table, in_folder("t.csv")), (float[]){ 1, -1 }, 2, 1, (int64_t[]){ 0, 1 });
    ls_table_destroy(table);
}

/* A file of numbers alone keeps its bits; one with texts becomes a table. */
static void by_name(void **state)
{
    (void)state;
    ls_dataset *data = NULL;
    ls_table *table = NULL;
    write_text(in_folder("p.csv"), "a,b\n1,2\n3,4\n");
    assert_int_equal(ls_load_data(NULL, in_folder("p.csv"), &data, NULL, .learned = &table), LS_OK);
    assert_null(table);
    assert_set(data, (float[]){ 1, 3 }, 2, 1, (int64_t[]){ 2, 4 });
    assert_int_equal(
        ls_load_data(NULL, in_folder("p.csv"), &data, NULL, .columns = { .label = "a" }, .learned = &table), LS_OK);
    assert_non_null(table);
    assert_set(data, (float[]){ -1, 1 }, 2, 1, (int64_t[]){ 1, 3 });
    ls_table_destroy(table);
    write_text(in_folder("p.csv"), TABLE);
    assert_int_equal(ls_load_data(NULL, in_folder("p.csv"), &data, NULL), LS_OK);
    int64_t count;
    assert_int_equal(ls_dataset_count(data, &count), LS_OK);
    assert_int_equal(count, 4);
    ls_dataset_destroy(data);
}

static void wrong_files(void **state)
{
    (void)state;
    static char many[2000] = "a,b\n";
    for (int i = 0; i < 40; i++)
        snprintf(many + strlen(many), 20, "t%d,1\n", i);
    const struct {
        const char *text;
        ls_table_options options;
        const char *pieces[2];
    } rows[] = {
        { "", { .label = NULL }, { "has no rows", "names of the columns" } },
        { "a,b\n", { .label = NULL }, { "no rows to learn from", "" } },
        { "a\n1\n", { .label = NULL }, { "line 1: 1 column", "separated by commas" } },
        { "a,a\n1,2\n", { .label = NULL }, { "line 1: columns 1 and 2 have the same name", "'a'" } },
        { "a,b\n1,2\n3\n", { .label = NULL }, { "line 3: 1 columns; expected 2", "" } },
        { "a,b\n1,2\n3,4,5\n", { .label = NULL }, { "line 3: 3 columns", "" } },
        { "a,b\n1,\"x\ny\n", { .label = NULL }, { "line 2, column 2", "has no end" } },
        { "a,b\n1,\"x\"y\n", { .label = NULL }, { "line 2, column 2: 'y' after the closing quote", "" } },
        { "a,b\n1,x\nfive,y\n",
          { .label = NULL },
          { "column 'a': line 2 has the number '1'", "line 3 has the text 'five'" } },
        { "a,b\n1,2\n3,\n", { .label = NULL }, { "line 3, column 2 (b)", "is a missing label" } },
        { "a,b\n1,2\n,4\n", { .missing = LS_MISSING_ERROR }, { "line 3, column 1 (a)", "is a missing value" } },
        { "a,b\n?,2\nNA,4\n", { .label = NULL }, { "column 'a' has no value in 2 rows", "drop" } },
        { "a,b\n1,2\n", { .label = "c" }, { "has no column 'c'", "there are a, b" } },
        { "height,b\n1,2\n", { .label = "heigth" }, { "has no column 'heigth'", "did you mean height?" } },
        { "a,b\n1,2\n", { .label = "a,b" }, { "more than one column", "" } },
        { "a,b\n1,2\n", { .drop = "x" }, { "drop: ", "has no column 'x'" } },
        { "a,b\n1,2\n", { .text = "x" }, { "text: ", "has no column 'x'" } },
        { "a,b\n1,2\n", { .drop = "b" }, { "column 'b' is the label", "" } },
        { "a,b\n1,2\n", { .drop = "a" }, { "none of them a feature", "" } },
        { "a,b\n1e308,1\n-1e308,2\n", { .label = NULL }, { "column 'a'", "too large to be standardised" } },
        { "a,b\n1,\xff\n", { .label = NULL }, { "line 2, column 2 (b)", "is not UTF-8" } },
        { many, { .label = NULL }, { "column 'a': more than 32 different texts", "the first is 't0', in line 2" } },
        { "a,b\n1,2\n", { .validation_split = 1 }, { "validation split", "got 1" } },
        { "a,b\n1,2\n", { .take = -1 }, { "take", "got -1" } },
        { "a,b\n1,2\n", { .missing = (ls_missing)7 }, { "unknown value 7", "" } },
    };
    ls_table *table = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_text(in_folder("bad.csv"), rows[i].text);
        ls_status status = ls_table_create_with(in_folder("bad.csv"), rows[i].options, &table);
        if (status == LS_OK)
            fail_msg("row %zu was accepted", i);
        assert_fails(status, status, rows[i].pieces[0], rows[i].pieces[1]);
    }
    write_file(in_folder("bad.csv"), "a,b\n1,\0\n", 9);
    assert_fails(ls_table_create(in_folder("bad.csv"), &table), LS_ERR_DATA, "bad.csv", "byte 6 is zero");
    assert_fails(ls_table_create(in_folder("none.csv"), &table), LS_ERR_NOT_FOUND, "none.csv");
    assert_null(table);
}

/* Files that a table does not fit. */
static void wrong_other_files(void **state)
{
    (void)state;
    static const struct {
        const char *text, *pieces[2];
    } rows[] = {
        { "age,kind,city\n1,old,Ulm\n", { "has no column 'the \"income\"'", "there are age, kind, city" } },
        { "1,2,3\n", { "line 1: has no names of columns", "with them" } },
        { "age,city,the \"income\",kind\nx,Ulm,1,old\n", { "line 2, column 1 (age): 'x'", "not a number" } },
        { "age,city,the \"income\",kind\n1,Ulm,1,ancient\n", { "line 2, column 4 (kind): 'ancient'", "not a class" } },
        { "age,city,the \"income\",kind\n1,Ulm,1\n", { "line 2: 3 columns; expected 4", "" } },
        { "age,city,the \"income\",kind\n1,Ulm,1e300,old\n", { "line 2, column 3", "too large for float32" } },
        { "age,city,the \"income\",kind\n", { "has no rows after the names of columns", "" } },
    };
    ls_table *table = learn(TABLE, (ls_table_options){ .label = NULL });
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_text(in_folder("u.csv"), rows[i].text);
        ls_dataset *data = ls_from_table(table, in_folder("u.csv"));
        assert_fails(ls_dataset_status(data), LS_ERR_DATA, "u.csv", rows[i].pieces[0], rows[i].pieces[1]);
        ls_dataset_destroy(data);
    }
    ls_table_destroy(table);
    table = learn("city,y\nUlm,1\nBonn,0\n", (ls_table_options){ .missing = LS_MISSING_ERROR });
    write_text(in_folder("u.csv"), "city,y\nUlm,1\nRome,0\n");
    ls_dataset *data = ls_from_table(table, in_folder("u.csv"));
    assert_fails(ls_dataset_status(data), LS_ERR_DATA, "line 3, column 1 (city): 'Rome' is not a category");
    ls_dataset_destroy(data);
    ls_table_destroy(table);
}

static void wrong_saved_tables(void **state)
{
    (void)state;
#define HEAD "{\"lockstep_table\":1,\"header\":true,\"missing\":\"fill\",\"columns\":["
    static const struct {
        const char *text, *piece;
    } rows[] = {
        { "{", "json:1:1" },
        { "[]", "expected an object" },
        { "{\"lockstep_table\":2}", "format 2" },
        { "{\"lockstep_table\":1,\"header\":true,\"missing\":\"maybe\"}", "missing is \"maybe\"" },
        { HEAD "],\"label\":{\"name\":\"y\",\"kind\":\"real\"}}", "at least one column" },
        { HEAD "{\"name\":\"a\",\"kind\":\"real\"}],\"label\":{}}",
          "table.columns[0]: kind \"real\"; expected number or text" },
        { HEAD "{\"name\":\"a\",\"kind\":\"text\",\"values\":[\"b\",\"a\"]}]}", "values[1]: expected values sorted" },
        { HEAD "{\"name\":\"a\",\"kind\":\"text\",\"values\":[]}]}", "at least one value" },
        { HEAD "{\"name\":\"a\",\"kind\":\"number\",\"median\":1,\"mean\":1,\"deviation\":0}]}",
          "deviation must be above 0" },
        { HEAD "{\"name\":\"a\",\"kind\":\"number\",\"median\":1,\"mean\":1,\"scale\":2}]}", "scale" },
    };
    ls_table *table = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_text(in_folder("bad.json"), rows[i].text);
        ls_status status = ls_table_load(in_folder("bad.json"), &table);
        if (status == LS_OK)
            fail_msg("row %zu was accepted", i);
        assert_fails(status, status, "bad.json", rows[i].piece);
    }
    assert_null(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_new_folder(samples_of_a_table),
        in_new_folder(another_file),
        in_new_folder(training_part),
        in_new_folder(options_of_columns),
        in_new_folder(by_name),
        in_new_folder(wrong_files),
        in_new_folder(wrong_other_files),
        in_new_folder(wrong_saved_tables),
        in_new_folder(quotes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
