// Parsers for the variables in which launchers give the host of rank 0. They have no side effects. Their
// running time is bounded by the length of the text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dsc {

// All these parsers return nullopt if the text is malformed or the name is longer than a host name can be.

// Returns the first host of a list in Slurm's compressed form. For "node[01-03,7]-ib,gpu05" it is
// "node01-ib".
std::optional<std::string> first_slurm_host(std::string_view list);

// Returns the first entry of "hosts" in the JSON that SageMaker puts into SM_TRAINING_ENV.
std::optional<std::string> first_sagemaker_host(std::string_view json);

// Returns the part before the colon. For "10.0.0.4:6000" it is "10.0.0.4".
std::optional<std::string> host_before_colon(std::string_view text);

// Returns the text itself if it is a well-formed name or address.
std::optional<std::string> plain_host(std::string_view text);

}  // namespace dsc
