--- `:ForetypeExplain`: what the last suggestion was made from.
local M = {}

local function row(...)
  return (string.format('%-14s%-8s%-8s%-12s%-12s%s', ...):gsub('%s+$', ''))
end

local function given(value) -- JSON's null
  return value ~= nil and value ~= vim.NIL
end

--- @param explained table? the answer to `foretype.explain` (docs/protocol.md)
--- @return string[]
function M.lines(explained)
  if not given(explained) then
    return { 'There was no suggestion yet, or it is forgotten by now.' }
  end
  local told = {
    ('suggestion of %d characters, origin: %s, %s tokens generated'):format(
      explained.characters, explained.origin, given(explained.generated_tokens) and explained.generated_tokens or 'no'
    ),
    '',
  }
  local plan = explained.plan
  if not given(plan) then
    table.insert(told, 'no prompt was made for it: it comes from what this machine had already')
  else
    table.insert(told, ('prompt: %d of at most %d tokens, layout %s, %s'):format(
      plan.prompt_tokens, plan.budget_tokens, plan.layout, plan.kind
    ))
    vim.list_extend(told, { '', row('tokens', 'count', 'cached', 'kind', 'scope', 'from') })
    for _, one in ipairs(plan.segments) do
      local cached = given(one.cached) and one.cached or '?'
      local from = ('%s %d-%d'):format(one.source.path, one.source.start, one.source['end'])
      table.insert(told, row(one.start .. '-' .. one['end'], one.tokens, cached, one.kind, one.scope, from))
    end
    for _, one in ipairs(plan.dropped) do
      table.insert(told, ('left out: %s %s, %d tokens: %s'):format(one.kind, one.source.path, one.tokens, one.reason))
    end
  end
  table.insert(told, '')
  local timings = given(explained.timings_ms) and explained.timings_ms or {}
  local stages = vim.tbl_keys(timings)
  table.sort(stages)
  for _, stage in ipairs(stages) do
    table.insert(told, ('%-14s%9.1f ms'):format(stage, timings[stage]))
  end
  return told
end

--- Ask the server, and show its answer in a window above.
function M.show()
  local lsp = require('foretype.lsp')
  local client = lsp.client()
  if not client then
    vim.notify('Foretype: no server runs; see :checkhealth foretype', vim.log.levels.WARN)
    return
  end
  local asked = { command = 'foretype.explain' } -- of the last one
  lsp.call(client, 'request', 'workspace/executeCommand', asked, function(err, result)
    if err then
      vim.notify('Foretype: ' .. err.message, vim.log.levels.WARN)
      return
    end
    vim.cmd('new')
    local bufnr = vim.api.nvim_get_current_buf()
    vim.bo[bufnr].buftype, vim.bo[bufnr].bufhidden, vim.bo[bufnr].swapfile = 'nofile', 'wipe', false
    vim.api.nvim_buf_set_lines(bufnr, 0, -1, false, M.lines(result))
    vim.bo[bufnr].modifiable = false
    vim.keymap.set('n', 'q', '<Cmd>close<CR>', { buffer = bufnr })
  end, vim.api.nvim_get_current_buf())
end

return M
