/* Describes failures: which thread did what at which source line. */
#include "sim.h"

#include <elf.h>
#include <map>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static std::string report;
static bool expected;

const char *sim_report(void)
{
    return report.c_str();
}

void sim_expect_failure(int on)
{
    expected = on != 0;
}

void report_reset(void)
{
    report.clear();
}

void sim_record(const std::string &text)
{
    if (!report.empty())
        return;
    report = text;
    if (!expected)
        fprintf(stderr, "%s\n", text.c_str());
}

/* Asks addr2line (binutils) for the source line and the lines of inlined callers, innermost first; leaves out frames of the
 * simulator's own wrappers. */
static std::string ask_line(sim_pc pc)
{
    extern char __executable_start[];
    if (pc == 0)
        return "an unknown line";
    const Elf64_Ehdr *elf = reinterpret_cast<const Elf64_Ehdr *>(__executable_start);
    unsigned long address = pc - 1ul + (elf->e_type == ET_DYN ? 0 : (unsigned long)__executable_start);
    char program[512], command[700], function[512], line[512];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    std::string text;
    if (n > 0) {
        program[n] = 0;
        snprintf(command, sizeof command, "addr2line -Cife '%s' 0x%lx 2>/dev/null", program, address);
        FILE *f = popen(command, "r");
        for (int frames = 0; f && fgets(function, sizeof function, f) && fgets(line, sizeof line, f);) {
            function[strcspn(function, "\n")] = line[strcspn(line, "\n")] = 0;
            char *note = strstr(line, " (discriminator");
            if (note)
                *note = 0;
            if (strstr(line, "/cudasim/include/") || strncmp(line, "??", 2) == 0 || frames == 3)
                continue;
            const char *base = strrchr(line, '/');
            text += (text.empty() ? "" : ", inlined at ") + std::string(base ? base + 1 : line);
            frames++;
            if (frames == 1)
                text += std::string(" in ") + std::string(function).substr(0, 80);
        }
        if (f)
            pclose(f);
    }
    if (text.empty()) {
        snprintf(line, sizeof line, "0x%lx (no line: addr2line missing or no -g)", address);
        text = line;
    }
    return text;
}

std::string sim_line(sim_pc pc)
{
    static std::map<sim_pc, std::string> asked;
    auto known = asked.find(pc);
    return known != asked.end() ? known->second : asked[pc] = ask_line(pc);
}

std::string sim_thread_name(const sim_thread *t)
{
    char s[120];
    const uint3 &b = sim_now->index;
    snprintf(s, sizeof s, "block (%u,%u,%u), thread %d (warp %d, lane %d)", b.x, b.y, b.z, t->id, t->warp, t->lane);
    return s;
}

std::string sim_id_name(int id)
{
    if (id < sim_now->threads)
        return "thread " + std::to_string(id) + " (warp " + std::to_string(id / 32) + ")";
    for (const sim_thread &t : sim_now->thread) {
        if (t.copy_agent == id)
            return "a cp.async of thread " + std::to_string(t.id);
        if (t.bulk_agent == id || t.bulk_write_agent == id)
            return "a bulk store of thread " + std::to_string(t.id);
    }
    for (int i = 0; i < SIM_LOAD_AGENTS; i++)
        if (sim_now->load_agent[i] == id)
            return "a TMA load";
    return "a wgmma";
}

void sim_fail(sim_pc pc, const char *format, ...)
{
    char text[8192];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    std::string all = std::string("cudasim: ") + text;
    if (sim_now && sim_self)
        all += "\n    by " + sim_thread_name(sim_self) + (pc ? " at " + sim_line(pc) : "");
    else if (pc)
        all += "\n    at " + sim_line(pc);
    sim_record(all);
    sim_abort_launch();
}
