// SPDX-License-Identifier: MIT

import Alerts
import Foundation
import Testing

@Suite struct AlertRuleTests {
  @Test func `each rule has a place in the order of weight, and the pages have the same order`() throws {
    #expect(AlertRule.byWeight.count == AlertRule.allCases.count)
    #expect(Set(AlertRule.byWeight) == Set(AlertRule.allCases))
    let checkout = URL(filePath: #filePath).appending(path: "../../..").standardizedFileURL
    let script = try String(contentsOf: checkout.appending(path: "Sources/Pages/parts/weight.js"), encoding: .utf8)
    let line = try #require(script.split(separator: "\n").first { $0.hasPrefix("export const RULES") })
    #expect(line.matches(of: /"([a-z_]+)"/).map { String($0.1) } == AlertRule.byWeight.map(\.rawValue))
  }
}
