--- Tells the server where the cursor rests after it was moved without typing, so that it may prepare that place.
local M = {}

local REST_MS = 100

--- By buffer: the state of its text when the cursor was last seen there.
local ticks = {}
local timer

local function moved(bufnr)
  local tick = vim.api.nvim_buf_get_changedtick(bufnr)
  local typed = ticks[bufnr] ~= tick
  ticks[bufnr] = tick
  timer:stop()
  if typed then
    return
  end
  timer:start(REST_MS, 0, vim.schedule_wrap(function()
    local lsp = require('foretype.lsp')
    local client = lsp.client(bufnr)
    if client and vim.api.nvim_get_current_buf() == bufnr and vim.api.nvim_buf_get_changedtick(bufnr) == tick then
      local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
      lsp.call(client, 'notify', 'foretype/cursorRested', params)
    end
  end))
end

function M.setup()
  timer = timer or vim.loop.new_timer()
  local group = vim.api.nvim_create_augroup('foretype_rested', {})
  vim.api.nvim_create_autocmd({ 'CursorMoved', 'CursorMovedI' }, {
    group = group,
    callback = function(event)
      moved(event.buf)
    end,
  })
  vim.api.nvim_create_autocmd('BufWipeout', {
    group = group,
    callback = function(event)
      ticks[event.buf] = nil
    end,
  })
end

return M
