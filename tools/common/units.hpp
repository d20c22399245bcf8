// Reads and writes numbers, bytes and rates in the form that people use.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tools {

// Parses a finite number that is not negative, such as 12 or 0.5. Returns nullopt for anything else.
std::optional<double> parse_number(const std::string& text);

// Parses bytes such as "65536", "1.5GB" or "64KiB". KB means 1000 bytes. KiB means 1024 bytes, and so does k,
// as in DSC_TUNING. The case of letters does not matter.
std::optional<double> parse_bytes(const std::string& text);

// Parses a rate in bytes such as "25GB/s", or in bits such as "100Gb/s" or "100Gbit/s". Returns bytes per
// second; nullopt without "/s".
std::optional<double> parse_rate(const std::string& text);

// These functions throw std::invalid_argument with the option's name if the value is wrong.
double number_of(const std::string& option, const std::string& text);
double part_of(const std::string& option, const std::string& text);  // above 0, at most 1
// Refuses "80G", which could mean 10^9 or 2^30.
double bytes_of(const std::string& option, const std::string& text);
double rate_of(const std::string& option, const std::string& text);
int whole_of(const std::string& option, const std::string& text, int least);
// Returns whole numbers that are at least `least`, from text such as "2,4".
std::vector<int> whole_list_of(const std::string& option, const std::string& text, int least);

std::vector<std::string> split(const std::string& text, char at);

// Returns text such as "61.2 GB" or "1.5 KB", in powers of 1000.
std::string bytes_text(double bytes);
// Converts microseconds to text such as "12.3 us", "812 ms" or "1.53 s".
std::string time_text(double us);
// Rounds to this number of digits, but never before the decimal point: with 6 digits, 72810.3 and 1234568
// stay as they are.
double rounded_to(double value, int digits);
// Returns the shortest text that is read back as the same number.
std::string exact_text(double value);

}  // namespace tools
