// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Timing

extension GatewayConfiguration {
  /// What is wrong with the database, with its remedy, if no gateway has it open. Its next start would find it.
  public func storeTrouble(_ clocks: any Clocks = LinuxMachine()) -> String? {
    if let words = Store.unfinishedMove(store.location) {
      return "store.location: \(words). The next start settles that"
    }
    return Store.trouble(store.location, clocks: clocks).map { "store.location: \($0). \($0.remedy)" }
  }
}
