/* The command `lockstep list`. docs/reference.md is its output. */
#include <string.h>

#include "tool/tool.h"

/* Where Keras has the names of each list. */
static const char *const modules[] = {
    "keras.layers",     "keras.activations",         "keras.ops", "keras.losses", "keras.metrics",
    "keras.optimizers", "keras.optimizers.schedules"
};

static const char *shown(const char *name)
{
    return name && name[0] ? name : "-";
}

/* Columns are as wide as their longest name, for readers of the text. */
static void print_list(ls_reference_list list)
{
    ls_reference_row row;
    int width[3] = { 8, (int)strlen(modules[list]), 7 };
    size_t count = 0;
    for (; ls_reference(list, count, &row); count++) {
        const char *names[] = { row.name, row.keras, row.pytorch };
        for (int i = 0; i < 3; i++)
            width[i] = (int)strlen(shown(names[i])) > width[i] ? (int)strlen(shown(names[i])) : width[i];
    }
    printf("\n## %s (%zu)\n\n", ls_reference_name(list), count);
    printf("| %-*s | %-*s | %-*s |\n|", width[0], "Lockstep", width[1], modules[list], width[2], "PyTorch");
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < width[i] + 2; k++)
            printf("-");
        printf("|");
    }
    printf("\n");
    for (size_t i = 0; ls_reference(list, i, &row); i++)
        printf("| %-*s | %-*s | %-*s |\n", width[0], shown(row.name), width[1], shown(row.keras), width[2],
               shown(row.pytorch));
}

static ls_status find_list(const char *name, ls_reference_list *out)
{
    const char *names[sizeof modules / sizeof *modules];
    size_t count = 0;
    for (; count < sizeof modules / sizeof *modules; count++)
        names[count] = ls_reference_name((ls_reference_list)count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) {
            *out = (ls_reference_list)i;
            return LS_OK;
        }
    ls_name_advice advice = ls_suggest_name(name, names, count);
    return ls_fail(LS_ERR_INVALID, "list: there is no list %s%s", name,
                   advice.text[0] ? advice.text
                                  : "; there are layers, activations, ops, losses, metrics, optimizers and schedules");
}

static void print_all(void)
{
    printf("# Names here, in Keras and in PyTorch\n\n"
           "`lockstep list` prints this page from the tables of the code, and `make reference-page` writes it.\n"
           "Options, defaults and formulas are Keras's. A PyTorch name is that of the nearest class or\n"
           "function: its defaults may differ. A dash: there is none. StochasticDepth, LayerScale and\n"
           "CustomScaleLayer are classes inside keras.applications; Model is keras.Model.\n\n"
           "Names in JSON, in `.keras` files and of `--loss`, `--metrics` and `--optimizer` are Keras's. Ops are\n"
           "functions `ls_op_NAME` of `lockstep/graph.h`, which has more functions that are made of them.\n\n"
           "`sparsemax` has Keras 3's formula: its threshold adds up all partial sums of the largest elements,\n"
           "where Martins and Astudillo (2016) have the last one alone. Outputs sum up to 1 only if a single\n"
           "element is above 0.\n");
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        print_list((ls_reference_list)i);
}

static ls_status run(const tool_settings *settings, int *stopped_by)
{
    (void)stopped_by;
    if (settings->file_count == 0)
        print_all();
    for (size_t i = 0; i < settings->file_count; i++) {
        ls_reference_list list;
        LS_TRY(find_list(settings->files[i], &list));
        print_list(list);
    }
    return LS_OK;
}

const tool_command tool_list = {
    .name = "list",
    .arguments = "[layers|activations|ops|losses|metrics|optimizers|schedules]...",
    .summary = "print the names of layers, ops, losses, ... beside Keras's and PyTorch's",
    .details = "Prints tables in Markdown, one for each list (default: all).",
    .takes_files = TOOL_ANY_FILES,
    .run = run,
};
