// SPDX-License-Identifier: MIT

import EventLoop
import Store

extension Store {
  /// A store that goes by this machine's clocks.
  public convenience init(_ settings: Settings) throws(StoreError) { try self.init(settings, clocks: LinuxClocks()) }

  public static func restore(_ backup: String, settings: Settings) throws(StoreError) -> Store.Replaced? {
    try restore(backup, settings: settings, clocks: LinuxClocks())
  }
}
