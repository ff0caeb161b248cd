// SPDX-License-Identifier: MIT

/// Why a request was refused, for programs: the `code` of a refusal. The command line has an exit code for each.
public enum RefusalCode: String, Sendable {
  case ambiguous, cancelled, full, invalid, radio, silence, store
  case linkDown = "link_down"
  case notFound = "not_found"
  case notOnRadio = "not_on_radio"
  case otherMessage = "other_message"
  case readOnly = "read_only"
  case tooLong = "too_long"
}
