// SPDX-License-Identifier: MIT

import EventLoop
import Store

extension Store {
  /// A store with this machine's clocks.
  public convenience init(_ settings: Settings, replaced: Replaced? = nil) throws(StoreError) {
    try self.init(settings, clocks: LinuxClocks(), replaced: replaced)
  }

  public static func restore(_ backup: String, settings: Settings) throws(StoreError) -> Store.Replaced? {
    try restore(backup, settings: settings, clocks: LinuxClocks())
  }

  public static func trouble(_ location: String) -> StoreError? { trouble(location, clocks: LinuxClocks()) }
}
