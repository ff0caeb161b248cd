// SPDX-License-Identifier: MIT

import TOML

extension HubConfiguration {
  /// The settings in `fresh` that need a restart: they differ from this configuration, with which the hub started. Tokens and the log's level need
  /// none; `[consume]` is for another program.
  public func waiting(in fresh: HubConfiguration) -> [String] {
    // `try?`: both were read without mistakes.
    guard let now = try? TOMLParser.parse(fresh.source), let then = try? TOMLParser.parse(source) else { return [] }
    let changed = TOMLTable.changes(from: then, to: now).filter {
      !["token", "gateway_tokens", "log_level"].contains($0) && !$0.hasPrefix("consume.")
    }
    let hasOtherPassword = password != fresh.password && !changed.contains("database_password_file")
    return changed + (hasOtherPassword ? ["database_password_file"] : [])
  }
}
